"""Language models on the runtime: texts are generated with one version while the learner works on those before."""
