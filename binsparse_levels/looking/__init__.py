"""What a person looks at: pictures, the report, advice on formats, and what these count."""
