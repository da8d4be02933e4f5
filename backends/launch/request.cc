#include "request.h"

#include <boost/json.hpp>

#include "base/error.h"

namespace moorage::launch {

Request parse_request(const std::string& text) {
  namespace json = boost::json;
  try {
    const json::value value = json::parse(text);
    Request request;
    each_field(request, [&value](const char* key, auto& field) {
      field = json::value_to<std::remove_reference_t<decltype(field)>>(value.at(key));
    });
    return request;
  } catch (const std::exception& error) {
    throw Error(Code::invalid_argument, std::string("not a launch request: ") + error.what());
  }
}

}  // namespace moorage::launch
