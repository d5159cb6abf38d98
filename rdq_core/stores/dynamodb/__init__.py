"""Tasks in DynamoDB: immutable records, published by one small state row that every conditional
write goes through.

tasks.py     the store: every verb of the port, made of
             submitting · claiming · settling · dead_letters · reading
schema.py    tables, keys, indexes and attribute names, which the infrastructure templates are tested against
expressions.py   the named clauses of conditional writes
transact.py  the one place that sends requests, repeats them and reads refusals
items.py, records.py, bodies.py   what is stored, to and from DynamoDB's items
"""
