# Attributes of a compiled class that are not written in its body. Python's `setattr` refuses them, because the type is not made by `class`.
from cpython.object cimport PyTypeObject

cdef extern from *:
    """
    static int pyclient_set_type_attribute(PyTypeObject *type, PyObject *name, PyObject *value) {
        int failed = PyDict_SetItem(type->tp_dict, name, value);
        PyType_Modified(type);
        return failed;
    }
    """
    int set_type_attribute "pyclient_set_type_attribute"(PyTypeObject *type, object name, object value) except -1
