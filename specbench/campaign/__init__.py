"""Many configurations: their bill, their order, their resumption, their report."""
