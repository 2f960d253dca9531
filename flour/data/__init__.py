"""What callers hand in, as the columns that a program's inputs are typed for."""
