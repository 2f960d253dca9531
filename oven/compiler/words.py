"""The words that native code has and Python has not, as those who read and check it see them.

Functions that become native code are plain Python over the vocabulary of oven.compiler.intrinsics.
Importing these names makes such a function one that can be checked; here they have no meaning.
"""

from __future__ import annotations


def word(*numbers: float) -> int:
    """Stands in Python for a word that only native code has."""
    raise NotImplementedError(numbers)


#: A number in 64 bits, with a sign or without, and floats.
int8 = int16 = int32 = int64 = uint8 = uint64 = float32 = float64 = word
#: A float rounded down, to one.
floor = word
#: Element `index` of an array at an address: (base, index). A peek may be anywhere.
ld_uint8 = ld_uint16 = ld_uint32 = ld_uint64 = ld_int8 = ld_int16 = ld_int32 = ld_int64 = word
ld_float32 = ld_float64 = peek_int32 = peek_int64 = word
#: One that nobody changes while the code runs.
ldc_uint8 = ldc_uint16 = ldc_uint64 = ldc_int32 = ldc_int64 = ldc_float64 = word
#: Write an element: (base, index, value). A poke may be anywhere.
st_uint8 = st_uint64 = st_int8 = st_int16 = st_int32 = st_int64 = word
st_float32 = st_float64 = poke_int64 = word
#: Read, write, add to, and compare and swap a word at once: (base, index, ...).
atomic_load = atomic_store = atomic_add = atomic_swap = word
#: The number beside a tag in a group of eight slots, the least of several: (slots, slot, tag).
#: Its upper half is zero only for a number.
seek_slots = word
#: Ask for the memory at an address, which will be read soon; any address will do.
fetch = word
#: One of two numbers, by no branch: (condition, yes, no).
choose = word
#: How many bits of a word are set, and which is the first.
count_bits = first_bit_uint64 = word
#: A bit for each of 64 bytes at an address: those from `low` to `span` above it (where, low, span),
#: the odd ones (where), those of ASCII with an odd entry in a table of 128 bytes (where, table).
bytes_within = odd_bytes = kinds_of_bytes = word
#: Copy 64 bytes, `fold` or-ed to capital letters: (where, made, fold). A bit for each not ASCII.
copy_small = word
#: The address of some words of the running call's own: (count).
stack_words = word
#: left + right, and left * right, modulo 2**64.
wrap_add = wrap_mul = word
#: Four floats at an address (base, index), four equal ones, their sum, product, a + b * c, and to
#: write them (base, index, four).
quad = quad_all = quad_add = quad_product = quad_add_product = quad_store = word
#: Call a function of C, or a stage, by its address, with so many words.
c_call_1 = c_call_2 = c_call_3 = c_call_4 = call_stage = word

#: 1 where kinds_of_bytes may be asked.
permutes128 = 0
