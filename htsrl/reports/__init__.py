"""What runs came to, in one file for somebody else: reads run folders, executes nothing in them."""
