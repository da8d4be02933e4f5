// Compiles Asio and Beast, once; all other files see only declarations (daemon/http/asio.h).
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
