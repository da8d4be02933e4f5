// Asio and Beast are compiled here, once; everybody else sees declarations (daemon/asio.h).
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
