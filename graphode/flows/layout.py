"""Which dimensions of a state are samples, and how values per sample meet the state.

A state is `[*batch, *system]`. Time, step size, error and status have one value per sample, shape
`[*batch]`; `spread` lines such values up with the state, `rms` goes the other way.
"""

import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

# A time or a step size: a float where all samples share it, else one float64 value per sample.
Time = float | Tensor

_warned_devices: set[str] = set()


@dataclass(frozen=True)
class Layout:
    """Shape, dtype and device of a state, and which of its leading dimensions are samples.

    Half-precision states are carried in float32 between evaluations, so that small steps are
    not lost in the sum; the field and the caller see the state's own dtype.
    """

    shape: torch.Size
    batch_dims: int
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, y: Tensor, batch_dims: int) -> "Layout":
        """The layout of the state `y`."""
        return cls(y.shape, batch_dims, y.dtype, y.device)

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of a value per sample."""
        return self.shape[: self.batch_dims]

    @property
    def system_dims(self) -> tuple[int, ...]:
        """The dimensions of one sample's state, counted from the end."""
        return tuple(range(self.batch_dims - len(self.shape), 0))

    @property
    def system_size(self) -> int:
        """Number of components of one sample."""
        return math.prod(self.shape[self.batch_dims :])

    @property
    def working_dtype(self) -> torch.dtype:
        """The dtype sums are taken in."""
        return torch.float32 if self.dtype in (torch.float16, torch.bfloat16) else self.dtype

    @property
    def time_dtype(self) -> torch.dtype:
        """float64, or float32 on a device that has no float64 (said once)."""
        if self.device.type != "mps":
            return torch.float64
        if self.device.type not in _warned_devices:
            _warned_devices.add(self.device.type)
            warnings.warn(
                f"Device {self.device.type!r} has no float64: time is kept in float32, so steps "
                f"below 1e-7 of the current time are lost.",
                stacklevel=2,
            )
        return torch.float32

    def spread(self, value: Tensor) -> Tensor:
        """Line values `[..., *batch]` up with states `[..., *batch, *system]`."""
        return value.reshape(value.shape + (1,) * len(self.system_dims))

    def scale(self, dt: Time) -> Time:
        """A step size as a factor for states: a float stays one."""
        if not isinstance(dt, Tensor):
            return dt
        return (self.spread(dt) if dt.ndim else dt).to(self.working_dtype)

    def field_time(self, t: Time) -> Tensor:
        """Time as a field receives it: the state's dtype, 0-d or broadcastable to the state."""
        if not isinstance(t, Tensor):
            return torch.full((), t, dtype=self.dtype, device=self.device)
        return (self.spread(t) if t.ndim else t).to(self.dtype)

    def rms(self, x: Tensor) -> Tensor:
        """Root mean square over each sample's components, `[*batch]`."""
        if not self.system_dims:
            return x.abs()
        return torch.linalg.vector_norm(x, dim=self.system_dims) / math.sqrt(self.system_size)

    def is_finite(self, x: Tensor) -> Tensor:
        """Whether all of a sample's components are finite, however large, `[*batch]`."""
        finite = x.isfinite()
        return finite.all(self.system_dims) if self.system_dims else finite

    def largest(self, x: Tensor) -> Tensor:
        """The size of a sample's largest component, `[*batch]`."""
        return x.abs().amax(self.system_dims) if self.system_dims else x.abs()

    def dot(self, x: Tensor, y: Tensor) -> Tensor:
        """Inner product per sample, `[*batch]`."""
        return (x * y).sum(dim=self.system_dims) if self.system_dims else x * y

    def sample(self, y: Tensor, index: int) -> Tensor:
        """The state of one sample, samples counted through all batch dimensions."""
        return y.reshape(-1, *y.shape[self.batch_dims :])[index]


@dataclass(frozen=True)
class SegmentedLayout(Layout):
    """Samples that share the dimension of nodes, one block after another: `[..., nodes, channels]`.

    Attributes:
        owner: The sample each node belongs to, `[nodes]`.
        sizes: The number of nodes of each sample.
    """

    owner: Tensor
    sizes: tuple[int, ...]

    @property
    def batch_shape(self) -> torch.Size:
        """Leading dimensions, then one value per block."""
        return torch.Size([*self.shape[:-2], len(self.sizes)])

    @property
    def place(self) -> Tensor:
        """The number of each node within its sample, `[nodes]`."""
        nodes = torch.arange(len(self.owner), device=self.owner.device)
        return nodes - torch.searchsorted(self.owner, self.owner)

    def spread(self, value: Tensor) -> Tensor:
        """Line values `[..., *batch]` up with states: every node takes its sample's."""
        return value.index_select(-1, self.owner)[..., None]

    def rms(self, x: Tensor) -> Tensor:
        """Root mean square over each sample's components."""
        counts = torch.tensor(self.sizes, dtype=x.dtype, device=x.device) * self.shape[-1]
        return (self.dot(x, x) / counts.clamp(min=1)).sqrt()

    def is_finite(self, x: Tensor) -> Tensor:
        """Whether all of a sample's components are finite, however large."""
        broken = (~x.isfinite()).any(-1).to(torch.int32)
        total = broken.new_zeros(*broken.shape[:-1], len(self.sizes))
        return total.index_add(-1, self.owner, broken) == 0

    def largest(self, x: Tensor) -> Tensor:
        """The size of a sample's largest component."""
        by_node = x.abs().amax(-1)
        found = by_node.new_zeros(*by_node.shape[:-1], len(self.sizes))
        return found.scatter_reduce(-1, self.owner.expand_as(by_node), by_node, "amax")

    def dot(self, x: Tensor, y: Tensor) -> Tensor:
        """Inner product per sample."""
        by_node = (x * y).sum(-1)
        total = by_node.new_zeros(*by_node.shape[:-1], len(self.sizes))
        return total.index_add(-1, self.owner, by_node)

    def sample(self, y: Tensor, index: int) -> Tensor:
        """The state of one sample, samples counted through all batch dimensions."""
        lead, block = divmod(index, len(self.sizes))
        return y.reshape(-1, *y.shape[-2:])[lead][self.owner == block]
