/* A stand-in for NVIDIA's libcuda.so.1, for machines without it: programs that need it link and start, and are told
 * that there is no device. Built and put in place by scripts/setup; tests start the program with it.
 *
 * It has every function that the crate cust_raw 0.11.3 declares, and each answers CUDA_ERROR_NO_DEVICE. Arguments are
 * left alone, so one declaration without parameters does for all of them (as the C calling conventions of x86-64 and
 * aarch64 Linux allow); nothing behind a pointer is written, except where named below. */

enum { SUCCESS = 0, INVALID_VALUE = 1, NO_DEVICE_CODE = 100 };

static const struct {
    int code;
    const char *name;
    const char *text;
} errors[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE_CODE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected (this is the stand-in for libcuda)"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
};

enum { NUM_ERRORS = sizeof errors / sizeof errors[0] };

int cuGetErrorName(int code, const char **name) {
    for (int i = 0; i < NUM_ERRORS; i++) {
        if (errors[i].code == code) {
            *name = errors[i].name;
            return SUCCESS;
        }
    }
    *name = 0;
    return INVALID_VALUE;
}

int cuGetErrorString(int code, const char **text) {
    for (int i = 0; i < NUM_ERRORS; i++) {
        if (errors[i].code == code) {
            *text = errors[i].text;
            return SUCCESS;
        }
    }
    *text = 0;
    return INVALID_VALUE;
}

/* There is no driver, so there is no version of one. */
int cuDriverGetVersion(int *version) {
    *version = 0;
    return NO_DEVICE_CODE;
}

#define NO_DEVICE(name) \
    int name(void) { return NO_DEVICE_CODE; }

NO_DEVICE(cuArray3DCreate_v2) NO_DEVICE(cuArray3DGetDescriptor_v2) NO_DEVICE(cuArrayCreate_v2)
NO_DEVICE(cuArrayDestroy) NO_DEVICE(cuArrayGetDescriptor_v2) NO_DEVICE(cuArrayGetPlane)
NO_DEVICE(cuArrayGetSparseProperties) NO_DEVICE(cuCtxAttach) NO_DEVICE(cuCtxCreate_v2)
NO_DEVICE(cuCtxCreate_v3) NO_DEVICE(cuCtxDestroy_v2) NO_DEVICE(cuCtxDetach) NO_DEVICE(cuCtxDisablePeerAccess)
NO_DEVICE(cuCtxEnablePeerAccess) NO_DEVICE(cuCtxGetApiVersion) NO_DEVICE(cuCtxGetCacheConfig)
NO_DEVICE(cuCtxGetCurrent) NO_DEVICE(cuCtxGetDevice) NO_DEVICE(cuCtxGetExecAffinity) NO_DEVICE(cuCtxGetFlags)
NO_DEVICE(cuCtxGetLimit) NO_DEVICE(cuCtxGetSharedMemConfig) NO_DEVICE(cuCtxGetStreamPriorityRange)
NO_DEVICE(cuCtxPopCurrent_v2) NO_DEVICE(cuCtxPushCurrent_v2) NO_DEVICE(cuCtxResetPersistingL2Cache)
NO_DEVICE(cuCtxSetCacheConfig) NO_DEVICE(cuCtxSetCurrent) NO_DEVICE(cuCtxSetLimit)
NO_DEVICE(cuCtxSetSharedMemConfig) NO_DEVICE(cuCtxSynchronize) NO_DEVICE(cuDestroyExternalMemory)
NO_DEVICE(cuDestroyExternalSemaphore) NO_DEVICE(cuDeviceCanAccessPeer) NO_DEVICE(cuDeviceComputeCapability)
NO_DEVICE(cuDeviceGet) NO_DEVICE(cuDeviceGetAttribute) NO_DEVICE(cuDeviceGetByPCIBusId)
NO_DEVICE(cuDeviceGetCount) NO_DEVICE(cuDeviceGetDefaultMemPool) NO_DEVICE(cuDeviceGetExecAffinitySupport)
NO_DEVICE(cuDeviceGetGraphMemAttribute) NO_DEVICE(cuDeviceGetLuid) NO_DEVICE(cuDeviceGetMemPool)
NO_DEVICE(cuDeviceGetName) NO_DEVICE(cuDeviceGetNvSciSyncAttributes) NO_DEVICE(cuDeviceGetP2PAttribute)
NO_DEVICE(cuDeviceGetPCIBusId) NO_DEVICE(cuDeviceGetProperties) NO_DEVICE(cuDeviceGetTexture1DLinearMaxWidth)
NO_DEVICE(cuDeviceGetUuid) NO_DEVICE(cuDeviceGetUuid_v2) NO_DEVICE(cuDeviceGraphMemTrim)
NO_DEVICE(cuDevicePrimaryCtxGetState) NO_DEVICE(cuDevicePrimaryCtxRelease_v2)
NO_DEVICE(cuDevicePrimaryCtxReset_v2) NO_DEVICE(cuDevicePrimaryCtxRetain)
NO_DEVICE(cuDevicePrimaryCtxSetFlags_v2) NO_DEVICE(cuDeviceSetGraphMemAttribute) NO_DEVICE(cuDeviceSetMemPool)
NO_DEVICE(cuDeviceTotalMem_v2) NO_DEVICE(cuEventCreate) NO_DEVICE(cuEventDestroy_v2)
NO_DEVICE(cuEventElapsedTime) NO_DEVICE(cuEventQuery) NO_DEVICE(cuEventRecord)
NO_DEVICE(cuEventRecordWithFlags) NO_DEVICE(cuEventSynchronize) NO_DEVICE(cuExternalMemoryGetMappedBuffer)
NO_DEVICE(cuExternalMemoryGetMappedMipmappedArray) NO_DEVICE(cuFlushGPUDirectRDMAWrites)
NO_DEVICE(cuFuncGetAttribute) NO_DEVICE(cuFuncGetModule) NO_DEVICE(cuFuncSetAttribute)
NO_DEVICE(cuFuncSetBlockShape) NO_DEVICE(cuFuncSetCacheConfig) NO_DEVICE(cuFuncSetSharedMemConfig)
NO_DEVICE(cuFuncSetSharedSize) NO_DEVICE(cuGetExportTable) NO_DEVICE(cuGetProcAddress)
NO_DEVICE(cuGraphAddChildGraphNode) NO_DEVICE(cuGraphAddDependencies) NO_DEVICE(cuGraphAddEmptyNode)
NO_DEVICE(cuGraphAddEventRecordNode) NO_DEVICE(cuGraphAddEventWaitNode)
NO_DEVICE(cuGraphAddExternalSemaphoresSignalNode) NO_DEVICE(cuGraphAddExternalSemaphoresWaitNode)
NO_DEVICE(cuGraphAddHostNode) NO_DEVICE(cuGraphAddKernelNode) NO_DEVICE(cuGraphAddMemAllocNode)
NO_DEVICE(cuGraphAddMemFreeNode) NO_DEVICE(cuGraphAddMemcpyNode) NO_DEVICE(cuGraphAddMemsetNode)
NO_DEVICE(cuGraphChildGraphNodeGetGraph) NO_DEVICE(cuGraphClone) NO_DEVICE(cuGraphCreate)
NO_DEVICE(cuGraphDebugDotPrint) NO_DEVICE(cuGraphDestroy) NO_DEVICE(cuGraphDestroyNode)
NO_DEVICE(cuGraphEventRecordNodeGetEvent) NO_DEVICE(cuGraphEventRecordNodeSetEvent)
NO_DEVICE(cuGraphEventWaitNodeGetEvent) NO_DEVICE(cuGraphEventWaitNodeSetEvent)
NO_DEVICE(cuGraphExecChildGraphNodeSetParams) NO_DEVICE(cuGraphExecDestroy)
NO_DEVICE(cuGraphExecEventRecordNodeSetEvent) NO_DEVICE(cuGraphExecEventWaitNodeSetEvent)
NO_DEVICE(cuGraphExecExternalSemaphoresSignalNodeSetParams)
NO_DEVICE(cuGraphExecExternalSemaphoresWaitNodeSetParams) NO_DEVICE(cuGraphExecHostNodeSetParams)
NO_DEVICE(cuGraphExecKernelNodeSetParams) NO_DEVICE(cuGraphExecMemcpyNodeSetParams)
NO_DEVICE(cuGraphExecMemsetNodeSetParams) NO_DEVICE(cuGraphExecUpdate)
NO_DEVICE(cuGraphExternalSemaphoresSignalNodeGetParams)
NO_DEVICE(cuGraphExternalSemaphoresSignalNodeSetParams) NO_DEVICE(cuGraphExternalSemaphoresWaitNodeGetParams)
NO_DEVICE(cuGraphExternalSemaphoresWaitNodeSetParams) NO_DEVICE(cuGraphGetEdges) NO_DEVICE(cuGraphGetNodes)
NO_DEVICE(cuGraphGetRootNodes) NO_DEVICE(cuGraphHostNodeGetParams) NO_DEVICE(cuGraphHostNodeSetParams)
NO_DEVICE(cuGraphInstantiateWithFlags) NO_DEVICE(cuGraphInstantiate_v2)
NO_DEVICE(cuGraphKernelNodeCopyAttributes) NO_DEVICE(cuGraphKernelNodeGetAttribute)
NO_DEVICE(cuGraphKernelNodeGetParams) NO_DEVICE(cuGraphKernelNodeSetAttribute)
NO_DEVICE(cuGraphKernelNodeSetParams) NO_DEVICE(cuGraphLaunch) NO_DEVICE(cuGraphMemAllocNodeGetParams)
NO_DEVICE(cuGraphMemFreeNodeGetParams) NO_DEVICE(cuGraphMemcpyNodeGetParams)
NO_DEVICE(cuGraphMemcpyNodeSetParams) NO_DEVICE(cuGraphMemsetNodeGetParams)
NO_DEVICE(cuGraphMemsetNodeSetParams) NO_DEVICE(cuGraphNodeFindInClone) NO_DEVICE(cuGraphNodeGetDependencies)
NO_DEVICE(cuGraphNodeGetDependentNodes) NO_DEVICE(cuGraphNodeGetType) NO_DEVICE(cuGraphReleaseUserObject)
NO_DEVICE(cuGraphRemoveDependencies) NO_DEVICE(cuGraphRetainUserObject) NO_DEVICE(cuGraphUpload)
NO_DEVICE(cuGraphicsMapResources) NO_DEVICE(cuGraphicsResourceGetMappedMipmappedArray)
NO_DEVICE(cuGraphicsResourceGetMappedPointer_v2) NO_DEVICE(cuGraphicsResourceSetMapFlags_v2)
NO_DEVICE(cuGraphicsSubResourceGetMappedArray) NO_DEVICE(cuGraphicsUnmapResources)
NO_DEVICE(cuGraphicsUnregisterResource) NO_DEVICE(cuImportExternalMemory) NO_DEVICE(cuImportExternalSemaphore)
NO_DEVICE(cuInit) NO_DEVICE(cuIpcCloseMemHandle) NO_DEVICE(cuIpcGetEventHandle) NO_DEVICE(cuIpcGetMemHandle)
NO_DEVICE(cuIpcOpenEventHandle) NO_DEVICE(cuIpcOpenMemHandle_v2) NO_DEVICE(cuLaunch)
NO_DEVICE(cuLaunchCooperativeKernel) NO_DEVICE(cuLaunchCooperativeKernelMultiDevice) NO_DEVICE(cuLaunchGrid)
NO_DEVICE(cuLaunchGridAsync) NO_DEVICE(cuLaunchHostFunc) NO_DEVICE(cuLaunchKernel) NO_DEVICE(cuLinkAddData_v2)
NO_DEVICE(cuLinkAddFile_v2) NO_DEVICE(cuLinkComplete) NO_DEVICE(cuLinkCreate_v2) NO_DEVICE(cuLinkDestroy)
NO_DEVICE(cuMemAddressFree) NO_DEVICE(cuMemAddressReserve) NO_DEVICE(cuMemAdvise) NO_DEVICE(cuMemAllocAsync)
NO_DEVICE(cuMemAllocFromPoolAsync) NO_DEVICE(cuMemAllocHost_v2) NO_DEVICE(cuMemAllocManaged)
NO_DEVICE(cuMemAllocPitch_v2) NO_DEVICE(cuMemAlloc_v2) NO_DEVICE(cuMemCreate)
NO_DEVICE(cuMemExportToShareableHandle) NO_DEVICE(cuMemFreeAsync) NO_DEVICE(cuMemFreeHost)
NO_DEVICE(cuMemFree_v2) NO_DEVICE(cuMemGetAccess) NO_DEVICE(cuMemGetAddressRange_v2)
NO_DEVICE(cuMemGetAllocationGranularity) NO_DEVICE(cuMemGetAllocationPropertiesFromHandle)
NO_DEVICE(cuMemGetInfo_v2) NO_DEVICE(cuMemHostAlloc) NO_DEVICE(cuMemHostGetDevicePointer_v2)
NO_DEVICE(cuMemHostGetFlags) NO_DEVICE(cuMemHostRegister_v2) NO_DEVICE(cuMemHostUnregister)
NO_DEVICE(cuMemImportFromShareableHandle) NO_DEVICE(cuMemMap) NO_DEVICE(cuMemMapArrayAsync)
NO_DEVICE(cuMemPoolCreate) NO_DEVICE(cuMemPoolDestroy) NO_DEVICE(cuMemPoolExportPointer)
NO_DEVICE(cuMemPoolExportToShareableHandle) NO_DEVICE(cuMemPoolGetAccess) NO_DEVICE(cuMemPoolGetAttribute)
NO_DEVICE(cuMemPoolImportFromShareableHandle) NO_DEVICE(cuMemPoolImportPointer) NO_DEVICE(cuMemPoolSetAccess)
NO_DEVICE(cuMemPoolSetAttribute) NO_DEVICE(cuMemPoolTrimTo) NO_DEVICE(cuMemPrefetchAsync)
NO_DEVICE(cuMemRangeGetAttribute) NO_DEVICE(cuMemRangeGetAttributes) NO_DEVICE(cuMemRelease)
NO_DEVICE(cuMemRetainAllocationHandle) NO_DEVICE(cuMemSetAccess) NO_DEVICE(cuMemUnmap) NO_DEVICE(cuMemcpy)
NO_DEVICE(cuMemcpy2DAsync_v2) NO_DEVICE(cuMemcpy2DUnaligned_v2) NO_DEVICE(cuMemcpy2D_v2)
NO_DEVICE(cuMemcpy3DAsync_v2) NO_DEVICE(cuMemcpy3DPeer) NO_DEVICE(cuMemcpy3DPeerAsync)
NO_DEVICE(cuMemcpy3D_v2) NO_DEVICE(cuMemcpyAsync) NO_DEVICE(cuMemcpyAtoA_v2) NO_DEVICE(cuMemcpyAtoD_v2)
NO_DEVICE(cuMemcpyAtoHAsync_v2) NO_DEVICE(cuMemcpyAtoH_v2) NO_DEVICE(cuMemcpyDtoA_v2)
NO_DEVICE(cuMemcpyDtoDAsync_v2) NO_DEVICE(cuMemcpyDtoD_v2) NO_DEVICE(cuMemcpyDtoHAsync_v2)
NO_DEVICE(cuMemcpyDtoH_v2) NO_DEVICE(cuMemcpyHtoAAsync_v2) NO_DEVICE(cuMemcpyHtoA_v2)
NO_DEVICE(cuMemcpyHtoDAsync_v2) NO_DEVICE(cuMemcpyHtoD_v2) NO_DEVICE(cuMemcpyPeer)
NO_DEVICE(cuMemcpyPeerAsync) NO_DEVICE(cuMemsetD16Async) NO_DEVICE(cuMemsetD16_v2)
NO_DEVICE(cuMemsetD2D16Async) NO_DEVICE(cuMemsetD2D16_v2) NO_DEVICE(cuMemsetD2D32Async)
NO_DEVICE(cuMemsetD2D32_v2) NO_DEVICE(cuMemsetD2D8Async) NO_DEVICE(cuMemsetD2D8_v2)
NO_DEVICE(cuMemsetD32Async) NO_DEVICE(cuMemsetD32_v2) NO_DEVICE(cuMemsetD8Async) NO_DEVICE(cuMemsetD8_v2)
NO_DEVICE(cuMipmappedArrayCreate) NO_DEVICE(cuMipmappedArrayDestroy) NO_DEVICE(cuMipmappedArrayGetLevel)
NO_DEVICE(cuMipmappedArrayGetSparseProperties) NO_DEVICE(cuModuleGetFunction) NO_DEVICE(cuModuleGetGlobal_v2)
NO_DEVICE(cuModuleGetSurfRef) NO_DEVICE(cuModuleGetTexRef) NO_DEVICE(cuModuleLoad) NO_DEVICE(cuModuleLoadData)
NO_DEVICE(cuModuleLoadDataEx) NO_DEVICE(cuModuleLoadFatBinary) NO_DEVICE(cuModuleUnload)
NO_DEVICE(cuOccupancyAvailableDynamicSMemPerBlock) NO_DEVICE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
NO_DEVICE(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) NO_DEVICE(cuOccupancyMaxPotentialBlockSize)
NO_DEVICE(cuOccupancyMaxPotentialBlockSizeWithFlags) NO_DEVICE(cuParamSetSize) NO_DEVICE(cuParamSetTexRef)
NO_DEVICE(cuParamSetf) NO_DEVICE(cuParamSeti) NO_DEVICE(cuParamSetv) NO_DEVICE(cuPointerGetAttribute)
NO_DEVICE(cuPointerGetAttributes) NO_DEVICE(cuPointerSetAttribute) NO_DEVICE(cuProfilerInitialize)
NO_DEVICE(cuProfilerStart) NO_DEVICE(cuProfilerStop) NO_DEVICE(cuSignalExternalSemaphoresAsync)
NO_DEVICE(cuStreamAddCallback) NO_DEVICE(cuStreamAttachMemAsync) NO_DEVICE(cuStreamBatchMemOp)
NO_DEVICE(cuStreamBeginCapture_v2) NO_DEVICE(cuStreamCopyAttributes) NO_DEVICE(cuStreamCreate)
NO_DEVICE(cuStreamCreateWithPriority) NO_DEVICE(cuStreamDestroy_v2) NO_DEVICE(cuStreamEndCapture)
NO_DEVICE(cuStreamGetAttribute) NO_DEVICE(cuStreamGetCaptureInfo) NO_DEVICE(cuStreamGetCaptureInfo_v2)
NO_DEVICE(cuStreamGetCtx) NO_DEVICE(cuStreamGetFlags) NO_DEVICE(cuStreamGetPriority)
NO_DEVICE(cuStreamIsCapturing) NO_DEVICE(cuStreamQuery) NO_DEVICE(cuStreamSetAttribute)
NO_DEVICE(cuStreamSynchronize) NO_DEVICE(cuStreamUpdateCaptureDependencies) NO_DEVICE(cuStreamWaitEvent)
NO_DEVICE(cuStreamWaitValue32) NO_DEVICE(cuStreamWaitValue64) NO_DEVICE(cuStreamWriteValue32)
NO_DEVICE(cuStreamWriteValue64) NO_DEVICE(cuSurfObjectCreate) NO_DEVICE(cuSurfObjectDestroy)
NO_DEVICE(cuSurfObjectGetResourceDesc) NO_DEVICE(cuSurfRefGetArray) NO_DEVICE(cuSurfRefSetArray)
NO_DEVICE(cuTexObjectCreate) NO_DEVICE(cuTexObjectDestroy) NO_DEVICE(cuTexObjectGetResourceDesc)
NO_DEVICE(cuTexObjectGetResourceViewDesc) NO_DEVICE(cuTexObjectGetTextureDesc) NO_DEVICE(cuTexRefCreate)
NO_DEVICE(cuTexRefDestroy) NO_DEVICE(cuTexRefGetAddressMode) NO_DEVICE(cuTexRefGetAddress_v2)
NO_DEVICE(cuTexRefGetArray) NO_DEVICE(cuTexRefGetBorderColor) NO_DEVICE(cuTexRefGetFilterMode)
NO_DEVICE(cuTexRefGetFlags) NO_DEVICE(cuTexRefGetFormat) NO_DEVICE(cuTexRefGetMaxAnisotropy)
NO_DEVICE(cuTexRefGetMipmapFilterMode) NO_DEVICE(cuTexRefGetMipmapLevelBias)
NO_DEVICE(cuTexRefGetMipmapLevelClamp) NO_DEVICE(cuTexRefGetMipmappedArray) NO_DEVICE(cuTexRefSetAddress2D_v3)
NO_DEVICE(cuTexRefSetAddressMode) NO_DEVICE(cuTexRefSetAddress_v2) NO_DEVICE(cuTexRefSetArray)
NO_DEVICE(cuTexRefSetBorderColor) NO_DEVICE(cuTexRefSetFilterMode) NO_DEVICE(cuTexRefSetFlags)
NO_DEVICE(cuTexRefSetFormat) NO_DEVICE(cuTexRefSetMaxAnisotropy) NO_DEVICE(cuTexRefSetMipmapFilterMode)
NO_DEVICE(cuTexRefSetMipmapLevelBias) NO_DEVICE(cuTexRefSetMipmapLevelClamp)
NO_DEVICE(cuTexRefSetMipmappedArray) NO_DEVICE(cuThreadExchangeStreamCaptureMode)
NO_DEVICE(cuUserObjectCreate) NO_DEVICE(cuUserObjectRelease) NO_DEVICE(cuUserObjectRetain)
NO_DEVICE(cuWaitExternalSemaphoresAsync)
