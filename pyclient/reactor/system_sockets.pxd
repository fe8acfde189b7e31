# Sockets of the system, read and written without a Python object for each call.

cdef extern from *:
    """
    #define PYCLIENT_MOST_PIECES 128
    #ifdef _WIN32
    #define PYCLIENT_HAS_SOCKETS 0
    typedef struct { void *iov_base; size_t iov_len; } pyclient_piece;
    static Py_ssize_t pyclient_receive(int fd, char *to, Py_ssize_t room) { return -1; }
    static Py_ssize_t pyclient_send(int fd, pyclient_piece *pieces, int count) { return -1; }
    #else
    #include <errno.h>
    #include <string.h>
    #include <sys/socket.h>
    #include <sys/uio.h>
    #define PYCLIENT_HAS_SOCKETS 1
    typedef struct iovec pyclient_piece;

    /* -1 if the socket would block, else minus the error's number less one. */
    static Py_ssize_t pyclient_socket_error(void)
    {
        return errno == EAGAIN || errno == EWOULDBLOCK ? -1 : -errno - 1;
    }

    /* How many bytes came, 0 at the end of the stream; or the error. */
    static Py_ssize_t pyclient_receive(int fd, char *to, Py_ssize_t room)
    {
        ssize_t size;
        do
            size = recv(fd, to, room, 0);
        while (size < 0 && errno == EINTR);
        return size < 0 ? pyclient_socket_error() : size;
    }

    /* How many bytes of the pieces the system took; or the error. */
    static Py_ssize_t pyclient_send(int fd, pyclient_piece *pieces, int count)
    {
        struct msghdr message;
        ssize_t size;
        memset(&message, 0, sizeof message);
        message.msg_iov = pieces;
        message.msg_iovlen = count;
        do
            size = sendmsg(fd, &message, 0);
        while (size < 0 && errno == EINTR);
        return size < 0 ? pyclient_socket_error() : size;
    }
    #endif
    """
    ctypedef struct Piece "pyclient_piece":
        void *iov_base
        size_t iov_len
    enum:
        MOST_PIECES "PYCLIENT_MOST_PIECES"
    bint HAS_SOCKETS "PYCLIENT_HAS_SOCKETS"
    Py_ssize_t receive_now "pyclient_receive"(int fd, char *to, Py_ssize_t room) noexcept nogil
    Py_ssize_t send_now "pyclient_send"(int fd, Piece *pieces, int count) noexcept nogil


cpdef Py_ssize_t receive(int descriptor, bytearray buffer, Py_ssize_t start) except? -1
cpdef bint send(int descriptor, list pieces) except? -1
