"""Lake tables: their metadata lists the files, the deleted rows and the meaning of columns."""
