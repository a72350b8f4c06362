"""What can go wrong between Python and a GPU, as exceptions."""


class WebGPUError(RuntimeError):
    """A fault that WebGPU reports."""


class NoAdapterError(WebGPUError):
    """There is no GPU to run on; the message says how to get one."""


class DeviceLostError(WebGPUError):
    """The device went away while it was used: a driver's reset, a kernel that ran too long, a machine that slept. The
    next call opens a new one."""


class ShaderError(WebGPUError):
    """WGSL that does not compile. ``line`` and ``column`` count from 1; ``line`` is 0 where none was named."""

    def __init__(self, kernel: str, wgsl: str, line: int, column: int, message: str):
        lines = wgsl.splitlines()
        where = f"{kernel}.wgsl, line {line}, column {column}" if line else f"{kernel}.wgsl"
        shown = f"\n{line:>5} | {lines[line - 1]}" if 0 < line <= len(lines) else ""
        super().__init__(f"{where}: {message}{shown}")
        self.line = line
        self.column = column
