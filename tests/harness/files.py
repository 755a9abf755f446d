"""Whole files at once."""


def text_of(path):
    with open(path) as f:
        return f.read()


def bytes_of(path):
    with open(path, "rb") as f:
        return f.read()


def write_text(path, text):
    with open(path, "w") as f:
        f.write(text)
