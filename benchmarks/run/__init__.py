"""What runs the measurements, in processes of their own."""
