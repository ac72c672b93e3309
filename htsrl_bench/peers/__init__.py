"""`htsrl bench peers`: the same work in htsrl and in the frameworks that people use."""
