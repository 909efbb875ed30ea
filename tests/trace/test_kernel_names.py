"""What the names of kernels and copies say."""

import pytest
from batchadvisor.probes.trace import kineto_names


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "HtoD"),
        ("Memcpy DtoH (Device -> Pinned)", "DtoH"),
        ("Memcpy PtoP (Device -> Device)", "PtoP"),
        ("CopyHostToDevice", "HtoD"),
        ("CopyDeviceToHost", "DtoH"),
        ("Copy", "other"),
    ],
)
def test_copy_directions(name, direction):
    assert kineto_names.copy_direction(name) == direction


@pytest.mark.parametrize(
    ("name", "uses"),
    [
        ("nvjet_tst_128x128_64x6_2x4_v_bz_NTT", True),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1", True),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64>", True),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", True),
        ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits>", True),
        ("void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple>>", False),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>", False),
        ("ampere_sgemm_32x128_nt", False),
        ("void at::native::vectorized_elementwise_kernel<4>", False),
        ("triton_tem_fused_mm_0", None),
        ("Cijk_Alik_Bljk_SB_Bias_AS_SAV", None),
    ],
)
def test_tensor_core_names(name, uses):
    assert kineto_names.uses_tensor_cores(name) is uses


@pytest.mark.parametrize("name", ["ncclDevKernel_X", "rcclKernel", "mscclKernel", "ncclKernel"])
def test_communication_names(name):
    assert kineto_names.is_communication(name)
    assert not kineto_names.is_communication("void at::native::reduce_kernel")
