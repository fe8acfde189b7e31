# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True, embedsignature=True
"""The Arrow C data interface: a tree of columns in one block of memory, freed with its root.

Independent of records and types of columns. The structures are declared in arrow_block.pxd.
"""
import cython
from cython.cimports.cpython.mem import PyMem_RawFree
from cython.cimports.libc.stdint import int64_t, uintptr_t
from cython.cimports.libc.string import memset


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def release_block(root: cython.pointer(ArrowArray)) -> cython.void:
    """Free the whole tree. Arrow calls this for the root, in any thread, when its columns are no longer used."""
    PyMem_RawFree(root.private_data)
    root.release = cython.NULL


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def release_nothing(node: cython.pointer(ArrowArray)) -> cython.void:
    """A column is freed with its root."""
    node.release = cython.NULL


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def add_root(
    block: cython.pointer(Block), node: cython.pointer(ArrowArray), length: int64_t, nulls: int64_t, children: cython.int
) -> cython.void:
    """A column without buffers yet, and with room for its children."""
    memset(node, 0, cython.sizeof(ArrowArray))
    node.length = length
    node.null_count = nulls
    node.buffers = cython.address(block.buffers[block.used_buffers])
    node.children = cython.address(block.children[block.used_children])
    node.release = release_nothing
    node.private_data = block
    block.used_children += children


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def add_child(
    block: cython.pointer(Block), parent: cython.pointer(ArrowArray), length: int64_t, nulls: int64_t, children: cython.int
) -> cython.pointer(ArrowArray):
    """The next child of *parent*."""
    node: cython.pointer(ArrowArray) = cython.address(block.nodes[block.used_nodes])
    block.used_nodes += 1
    add_root(block, node, length, nulls, children)
    parent.children[parent.n_children] = node
    parent.n_children += 1
    return node


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def add_buffer(block: cython.pointer(Block), node: cython.pointer(ArrowArray), size: cython.Py_ssize_t) -> cython.p_uchar:
    """The next buffer of the newest *node*, aligned; a size of 0 is none, as for validity when nothing is null."""
    at: cython.p_uchar = cython.NULL
    if size > 0:
        at = block.free + (-cython.cast(uintptr_t, block.free) & (ALIGNMENT - 1))
        block.free = at + size
    node.buffers[node.n_buffers] = at
    node.n_buffers += 1
    block.used_buffers += 1
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def add_numbers(
    block: cython.pointer(Block), root: cython.pointer(ArrowArray), rows: int64_t, size: cython.Py_ssize_t
) -> cython.p_uchar:
    """A column of numbers without nulls."""
    node: cython.pointer(ArrowArray) = add_child(block, root, rows, 0, 0)
    add_buffer(block, node, 0)
    return add_buffer(block, node, rows * size)
