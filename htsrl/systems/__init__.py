"""Systems of the literature as plug-ins: each a folder of its own, which the runtime knows by an entry point alone."""
