"""The transaction coordinator: who has which transaction open, and how it ends.

Source: docs/spec/transactions.md §1, §2 and §3.
"""
