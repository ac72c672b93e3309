"""Datasets: recorded episodes in a folder of plain numbers, written whole or not at all, and read with doubt."""
