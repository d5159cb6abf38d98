"""What happens next: deciding what is done with each task. Storage, time and chance come in through
`ports`.
"""
