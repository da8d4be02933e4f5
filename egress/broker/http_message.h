// The head of an HTTP/1.1 message, and a parser that keeps it and hands out the body decoded.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moorage::egress {

struct Field {
  std::string name;
  std::string value;
};
using Fields = std::vector<Field>;

struct RequestHead {
  std::string method;
  std::string target;  // a path with its query, or "*"
  Fields fields;       // without those of the framing and of the connection
};

struct ResponseHead {
  int status = 0;
  std::string reason;
  Fields fields;
};

// How the bytes after the head are framed.
struct Framing {
  bool chunked = false;
  std::string length;  // the value of Content-Length; empty: none
};

bool same_name(std::string_view one, std::string_view other);  // of fields: without case

}  // namespace moorage::egress
