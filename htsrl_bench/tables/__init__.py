"""The subcommands of `htsrl bench`: what is asked for, measured and written down."""
