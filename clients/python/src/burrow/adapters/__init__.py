"""Sandboxes for agent frameworks: in each module, the classes of one framework over this client. A
module needs its framework, which the extra of the same name installs."""
