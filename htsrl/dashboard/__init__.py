"""`htsrl dashboard`: a local page of the runs of a folder. It reads run folders and executes nothing in them."""
