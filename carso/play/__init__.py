"""`carso play`: a page on this machine to attack defences by hand."""
