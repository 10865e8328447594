"""The command line: `penstock demo | run | sql | explain | bench | doctor`."""
