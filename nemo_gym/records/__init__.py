"""Read finished records: conversations and answers in the format of any model API."""
