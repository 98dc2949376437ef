"""Records that were made elsewhere, brought into the form of this workbook."""
