# Functions that would load a shared library from inside the sandbox into process 1 (or query a name
# service) are banned from the linked program; dlopen and iconv, which glibc itself links into every
# static program, from our own objects.
string(JOIN "|" in_program getpw getgr[eng] getspnam initgroups getaddrinfo getnameinfo gethostby
  getservby __nss_ iconv_open$ wordexp)
string(JOIN "|" in_objects dlopen dlsym iconv setlocale getpw getgr[eng] initgroups getaddrinfo
  gethostby grantpt)

file(STRINGS ${SYMBOLS} lines REGEX " [TtWwVi] (${in_program})")
foreach(line ${lines})
  message(SEND_ERROR "linked into the warden: ${line}")
endforeach()
file(STRINGS ${SYMBOLS} all REGEX " T main")
if(NOT all)
  message(FATAL_ERROR "${SYMBOLS} is not a list of symbols")
endif()

foreach(object ${OBJECTS})
  execute_process(COMMAND ${NM} -u ${object} OUTPUT_VARIABLE undefined RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "nm ${object} failed")
  endif()
  string(REGEX MATCHALL " U (${in_objects})[^\n]*" found "${undefined}")
  if(found)
    message(SEND_ERROR "${object} uses ${found}")
  endif()
endforeach()
