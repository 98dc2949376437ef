"""What a run is: the sections of a params file as types, and the words of a mistake in them."""
