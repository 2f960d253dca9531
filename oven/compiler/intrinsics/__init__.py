"""What emitted source may call besides arithmetic and memory: text, counts, trees."""
