# C interface: connections read and write sizes and small frames without a slice.
cpdef long long int32_at(bytearray buffer, Py_ssize_t at) except? -1
cpdef bytes bytes_at(bytearray buffer, Py_ssize_t at, Py_ssize_t size)
cpdef long long first_int32(bytes data) except? -1
cpdef bytes int32_bytes(long long number)
