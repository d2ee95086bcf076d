"""Runs the measurements, in processes of their own."""
