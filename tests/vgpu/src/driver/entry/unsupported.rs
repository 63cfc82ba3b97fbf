//! What the bindings declare and the virtual GPU does not do: programs link, calls answer `NotSupported`.
//!
//! The symbols take no arguments here; a C caller's arguments are its own affair on every 64-bit ABI this runs on.

use std::ffi::c_void;

use crate::driver::Code;

macro_rules! unsupported {
    ($($name:ident),* $(,)?) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> Code {
                Code::NotSupported
            }
        )*

        /// These entry points, by name.
        pub(super) fn symbols() -> Vec<(&'static str, *const c_void)> {
            vec![$((stringify!($name), $name as *const c_void)),*]
        }
    };
}

unsupported! {
    cuArray3DCreate_v2, cuArray3DGetDescriptor_v2, cuArrayCreate_v2, cuArrayDestroy,
    cuArrayGetDescriptor_v2, cuArrayGetPlane, cuArrayGetSparseProperties, cuCtxAttach,
    cuCtxCreate_v3, cuCtxDetach, cuCtxGetExecAffinity, cuDestroyExternalMemory,
    cuDestroyExternalSemaphore, cuDeviceGetDefaultMemPool, cuDeviceGetExecAffinitySupport,
    cuDeviceGetGraphMemAttribute, cuDeviceGetLuid, cuDeviceGetMemPool,
    cuDeviceGetNvSciSyncAttributes, cuDeviceGetProperties, cuDeviceGetTexture1DLinearMaxWidth,
    cuDeviceGraphMemTrim, cuDeviceSetGraphMemAttribute, cuDeviceSetMemPool, cuEventRecordWithFlags,
    cuExternalMemoryGetMappedBuffer, cuExternalMemoryGetMappedMipmappedArray,
    cuFlushGPUDirectRDMAWrites, cuFuncSetBlockShape, cuFuncSetSharedSize, cuGetExportTable,
    cuGraphAddChildGraphNode, cuGraphAddDependencies, cuGraphAddEmptyNode,
    cuGraphAddEventRecordNode, cuGraphAddEventWaitNode, cuGraphAddExternalSemaphoresSignalNode,
    cuGraphAddExternalSemaphoresWaitNode, cuGraphAddHostNode, cuGraphAddKernelNode,
    cuGraphAddMemAllocNode, cuGraphAddMemFreeNode, cuGraphAddMemcpyNode, cuGraphAddMemsetNode,
    cuGraphChildGraphNodeGetGraph, cuGraphClone, cuGraphCreate, cuGraphDebugDotPrint,
    cuGraphDestroyNode, cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeSetEvent,
    cuGraphEventWaitNodeGetEvent, cuGraphEventWaitNodeSetEvent, cuGraphExecChildGraphNodeSetParams,
    cuGraphExecEventRecordNodeSetEvent, cuGraphExecEventWaitNodeSetEvent,
    cuGraphExecExternalSemaphoresSignalNodeSetParams,
    cuGraphExecExternalSemaphoresWaitNodeSetParams, cuGraphExecHostNodeSetParams,
    cuGraphExecKernelNodeSetParams, cuGraphExecMemcpyNodeSetParams, cuGraphExecMemsetNodeSetParams,
    cuGraphExecUpdate, cuGraphExternalSemaphoresSignalNodeGetParams,
    cuGraphExternalSemaphoresSignalNodeSetParams, cuGraphExternalSemaphoresWaitNodeGetParams,
    cuGraphExternalSemaphoresWaitNodeSetParams, cuGraphGetEdges, cuGraphGetRootNodes,
    cuGraphHostNodeGetParams, cuGraphHostNodeSetParams, cuGraphKernelNodeCopyAttributes,
    cuGraphKernelNodeGetAttribute, cuGraphKernelNodeGetParams, cuGraphKernelNodeSetAttribute,
    cuGraphKernelNodeSetParams, cuGraphMemAllocNodeGetParams, cuGraphMemFreeNodeGetParams,
    cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeSetParams, cuGraphMemsetNodeGetParams,
    cuGraphMemsetNodeSetParams, cuGraphNodeFindInClone, cuGraphNodeGetDependencies,
    cuGraphNodeGetDependentNodes, cuGraphReleaseUserObject, cuGraphRemoveDependencies,
    cuGraphRetainUserObject, cuGraphicsMapResources, cuGraphicsResourceGetMappedMipmappedArray,
    cuGraphicsResourceGetMappedPointer_v2, cuGraphicsResourceSetMapFlags_v2,
    cuGraphicsSubResourceGetMappedArray, cuGraphicsUnmapResources, cuGraphicsUnregisterResource,
    cuImportExternalMemory, cuImportExternalSemaphore, cuIpcGetEventHandle, cuIpcOpenEventHandle,
    cuLaunch, cuLaunchCooperativeKernelMultiDevice, cuLaunchGrid, cuLaunchGridAsync,
    cuLinkAddData_v2, cuLinkAddFile_v2, cuLinkComplete, cuLinkCreate_v2, cuLinkDestroy,
    cuMemAddressFree, cuMemAddressReserve, cuMemAdvise, cuMemAllocAsync, cuMemAllocFromPoolAsync,
    cuMemAllocManaged, cuMemAllocPitch_v2, cuMemCreate, cuMemExportToShareableHandle,
    cuMemFreeAsync, cuMemGetAccess, cuMemGetAllocationGranularity,
    cuMemGetAllocationPropertiesFromHandle, cuMemImportFromShareableHandle, cuMemMap,
    cuMemMapArrayAsync, cuMemPoolCreate, cuMemPoolDestroy, cuMemPoolExportPointer,
    cuMemPoolExportToShareableHandle, cuMemPoolGetAccess, cuMemPoolGetAttribute,
    cuMemPoolImportFromShareableHandle, cuMemPoolImportPointer, cuMemPoolSetAccess,
    cuMemPoolSetAttribute, cuMemPoolTrimTo, cuMemPrefetchAsync, cuMemRangeGetAttribute,
    cuMemRangeGetAttributes, cuMemRelease, cuMemRetainAllocationHandle, cuMemSetAccess, cuMemUnmap,
    cuMemcpy2DAsync_v2, cuMemcpy2DUnaligned_v2, cuMemcpy2D_v2, cuMemcpy3DAsync_v2, cuMemcpy3DPeer,
    cuMemcpy3DPeerAsync, cuMemcpy3D_v2, cuMemcpyAtoA_v2, cuMemcpyAtoD_v2, cuMemcpyAtoHAsync_v2,
    cuMemcpyAtoH_v2, cuMemcpyDtoA_v2, cuMemcpyHtoAAsync_v2, cuMemcpyHtoA_v2, cuMemsetD2D16Async,
    cuMemsetD2D16_v2, cuMemsetD2D32Async, cuMemsetD2D32_v2, cuMemsetD2D8Async, cuMemsetD2D8_v2,
    cuMipmappedArrayCreate, cuMipmappedArrayDestroy, cuMipmappedArrayGetLevel,
    cuMipmappedArrayGetSparseProperties, cuModuleGetSurfRef, cuModuleGetTexRef,
    cuModuleLoadFatBinary, cuParamSetSize, cuParamSetTexRef, cuParamSetf, cuParamSeti, cuParamSetv,
    cuPointerSetAttribute, cuProfilerInitialize, cuSignalExternalSemaphoresAsync,
    cuStreamAddCallback, cuStreamAttachMemAsync, cuStreamBatchMemOp, cuStreamCopyAttributes,
    cuStreamGetAttribute, cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v2, cuStreamSetAttribute,
    cuStreamUpdateCaptureDependencies, cuStreamWaitValue64, cuStreamWriteValue64,
    cuSurfObjectCreate, cuSurfObjectDestroy, cuSurfObjectGetResourceDesc, cuSurfRefGetArray,
    cuSurfRefSetArray, cuTexObjectCreate, cuTexObjectDestroy, cuTexObjectGetResourceDesc,
    cuTexObjectGetResourceViewDesc, cuTexObjectGetTextureDesc, cuTexRefCreate, cuTexRefDestroy,
    cuTexRefGetAddressMode, cuTexRefGetAddress_v2, cuTexRefGetArray, cuTexRefGetBorderColor,
    cuTexRefGetFilterMode, cuTexRefGetFlags, cuTexRefGetFormat, cuTexRefGetMaxAnisotropy,
    cuTexRefGetMipmapFilterMode, cuTexRefGetMipmapLevelBias, cuTexRefGetMipmapLevelClamp,
    cuTexRefGetMipmappedArray, cuTexRefSetAddress2D_v3, cuTexRefSetAddressMode,
    cuTexRefSetAddress_v2, cuTexRefSetArray, cuTexRefSetBorderColor, cuTexRefSetFilterMode,
    cuTexRefSetFlags, cuTexRefSetFormat, cuTexRefSetMaxAnisotropy, cuTexRefSetMipmapFilterMode,
    cuTexRefSetMipmapLevelBias, cuTexRefSetMipmapLevelClamp, cuTexRefSetMipmappedArray,
    cuUserObjectCreate, cuUserObjectRelease, cuUserObjectRetain, cuWaitExternalSemaphoresAsync,
}
