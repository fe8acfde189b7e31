# Attributes that the interpreter reads from the object itself. A property of a compiled class is a call for every read,
# 10 ns; a member that holds an object is what the interpreter's inline caches know, and costs next to nothing.


cdef extern from *:
    """
    #include "structmember.h"

    /* Put a read-only member in the place of the type's property *name*. It lives as long as the type: for ever. */
    static int pyclient_set_member(PyObject *type, const char *name, Py_ssize_t offset, const char *doc)
    {
        PyMemberDef *member = (PyMemberDef *)PyMem_RawCalloc(1, sizeof(PyMemberDef));
        PyObject *descriptor;
        int failed;
        if (member == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        member->name = (char *)name;
        member->type = T_OBJECT_EX;
        member->offset = offset;
        member->flags = READONLY;
        member->doc = (char *)doc;
        descriptor = PyDescr_NewMember((PyTypeObject *)type, member);
        if (descriptor == NULL)
            return -1;
        failed = PyDict_SetItemString(((PyTypeObject *)type)->tp_dict, name, descriptor);
        Py_DECREF(descriptor);
        PyType_Modified((PyTypeObject *)type);
        return failed;
    }
    """
    int set_member "pyclient_set_member"(object type, const char* name, Py_ssize_t offset, const char* doc) except -1
    # Cython does not give the address of an object's field, but its struct has a name.
    Py_ssize_t topic_at "offsetof(struct __pyx_obj_8pyclient_7records_6record_Record, _topic)"
    Py_ssize_t key_at "offsetof(struct __pyx_obj_8pyclient_7records_6record_Record, _key)"
    Py_ssize_t value_at "offsetof(struct __pyx_obj_8pyclient_7records_6record_Record, _value)"
