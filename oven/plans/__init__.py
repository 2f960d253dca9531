"""Plans: native code for a program, run, cut into chunks, saved, loaded and restored."""
