"""The same graphs of workers in one process, in htsrl's runtime and in plain Ray actors (the reactor model's paper,
arXiv 2312.04704).

At every tag a driver gives all workers one array, each worker reacts to it, and the driver has all that came of it in
the order of the workers before it continues to the next tag.
"""
