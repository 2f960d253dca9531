"""Models on more than one machine: which model lives where, and answers that outlive a replica."""
