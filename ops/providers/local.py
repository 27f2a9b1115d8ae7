"""The embedded workers of the synthetic environment, which run in this process."""

from ops.core.registry import Provider

PROVIDER = Provider("local", plugin="ops.synthetic.plugin")
