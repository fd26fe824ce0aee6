"""What tables, fields, states and acts are called on the pages of staff, in the language of the reader."""
