"""What a plan is made of and how long each part takes, for people."""
