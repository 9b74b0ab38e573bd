"""This process among the ranks: its environment, its device and process group, and what ranks exchange.

Start reading at `state.py` (`PartialState`), then `process_group.py` (how a rank joins) and `collectives.py` (what
users call). `collectives.py` is built on `collective_backends.py` (torch.distributed or torch_xla) and on
`object_collectives.py` (Python objects over gloo). `messages/` is what ranks send each other beside the training.
"""
