"""Stands for `tiktoken`, whose vocabularies are downloads: a token a byte."""

from types import SimpleNamespace


def get_encoding(_: str):
    """Of any name the same one."""
    return SimpleNamespace(
        n_vocab=50257,
        max_token_value=50256,
        eot_token=50256,
        encode=lambda text, **_: list(text.encode()),
        encode_ordinary=lambda text: list(text.encode()),
        decode=lambda tokens: bytes(token % 256 for token in tokens).decode(errors="replace"),
        decode_bytes=lambda tokens: bytes(token % 256 for token in tokens),
    )
