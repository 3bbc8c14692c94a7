"""Pictures, the report, advice on formats, and the measures that these show."""
