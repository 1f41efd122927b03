from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf.report.kernel_names import short_names

# As an H200's profile of a Nano step names them.
COPY = "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()()"
REDUCE = (
    "ReduceOp<float, func_wrapper_t<float, sum_functor<float, float, float>::operator()(at::TensorIterator&)"
    "::{lambda(float, float)#1}>, unsigned int, float, 4, 4> >"
)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            f"elementwise_kernel<128, 2, gpu_kernel_impl_nocast<{COPY} const::{{lambda(float)#1}}>"
            "(at::TensorIteratorBase&)::{lambda(int)#1}>",
            "elementwise_kernel direct_copy float",
        ),
        (f"reduce_kernel<128, 4, {REDUCE}", "reduce_kernel float sum_functor"),
        (
            "elementwise_kernel<128, 2, gpu_kernel_impl_nocast<BinaryFunctor<float, float, float, "
            "binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&)::{lambda(int)#1}>",
            "elementwise_kernel BinaryFunctor float MulFunctor",
        ),
        (
            "multi_tensor_apply_kernel<TensorListMetadata<2>, BinaryOpListAlphaFunctor<float, 2, 2>, std::plus<float>>",
            "multi_tensor_apply_kernel BinaryOpListAlphaFunctor float plus",
        ),
        ("void at::native::elementwise<float>(int)", "elementwise float"),
        ("nvjet_sm90_tst_32x64_64x16_4x2_h_bz_NTN", "nvjet_sm90_tst_32x64_64x16_4x2_h_bz_NTN"),
        ("Memcpy of two words", "Memcpy of two words"),
    ],
)
def test_what_is_done_and_on_what_is_kept(name: str, short: str) -> None:
    assert short_names([name]) == [short]


def test_names_that_become_equal_get_the_numbers_of_their_template_or_one_of_their_own() -> None:
    blocks = [f"reduce_kernel<{block}, {REDUCE}" for block in ("128, 4", "512, 1")]

    assert short_names(blocks) == ["reduce_kernel<128, 4> float sum_functor", "reduce_kernel<512, 1> float sum_functor"]
    assert short_names(["scan<A>", "scan<B>", "other<A>"]) == ["scan #1", "scan #2", "other"]


@given(st.lists(st.from_regex(r"\A[a-c]{1,2}(<[1-2AB, ]{0,4}>)?( #[12])?\Z"), unique=True))
def test_short_names_of_different_kernels_differ(names: list[str]) -> None:
    assert len(set(short_names(names))) == len(names)
